"""The version of mxr. A module of its own: the metadata of the installed package take as long to read as all else."""

__version__ = "0.1.0"
