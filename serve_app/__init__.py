"""The ingress side: contract, routing, policies, the one path of a request."""
