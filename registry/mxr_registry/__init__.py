"""mxr-registry: the service that holds the artifacts, and the only owner of the database and the store."""
