"""The OpenAPI document of the registry, from the types that the routes decode and encode."""
