"""The deployment's side: the hook, its private directory and its env file."""
