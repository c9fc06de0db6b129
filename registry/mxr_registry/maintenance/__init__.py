"""Operations on a whole registry: sweep, fsck, move."""
