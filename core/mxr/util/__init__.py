"""General helpers without knowledge of mxr: JSON codec, frozen values, files on disk, hashes."""
