"""Precompilation of a whole matrix: plan it, run it, plan a toolchain upgrade, report the results."""
