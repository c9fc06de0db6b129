"""S3: the client of a bucket and its settings. boto3 is imported in `bucket` only, where it is installed."""
