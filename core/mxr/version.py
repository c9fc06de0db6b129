"""The version of mxr. A module of its own: the metadata of the installed package take as long to read as all else."""

__version__ = "0.1.0"


def order_of(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, such as (0, 1, 0), to compare it with another one; () for what is none."""
    numbers = version.partition("+")[0].split(".")
    return tuple(map(int, numbers)) if all(each.isascii() and each.isdigit() for each in numbers) else ()
