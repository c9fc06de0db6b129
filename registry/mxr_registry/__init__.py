"""mxr-registry: the HTTP service that stores artifacts and queues compile jobs. Only it uses the database and store."""
