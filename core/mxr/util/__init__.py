"""General modules without knowledge of mxr: JSON codec, frozen dataclasses, files on disk, hashes."""
