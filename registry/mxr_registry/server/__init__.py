"""What stands between the network and the application: connections, request headers, memory for request bodies."""
