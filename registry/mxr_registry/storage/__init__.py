"""Where blobs lie: one protocol of few verbs, and the stores that keep it."""
