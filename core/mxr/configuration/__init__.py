"""Configuration of the services, with one schema for file, environment and options; and reading files that configure.

config_file    reads a configuration file that only this user can write
schema         settings, in tables with names that are the same in file, environment and options
reading        the values from the four sources, each with where it comes from
printing       the sample file, the reference table, the values in force
"""
