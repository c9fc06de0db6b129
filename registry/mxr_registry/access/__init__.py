"""Who sends a request and what it may do: tokens, the scope of each route, and the check of a token."""
