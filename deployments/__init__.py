"""The deployments that run beside the ingress: providers and their engines."""
