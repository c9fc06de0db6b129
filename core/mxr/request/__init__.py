"""Making a request: the model, the options of a person, and the facts of the host."""
