"""What runs under the deployment's interpreter.

Standard library and torch only, run from a copy.
"""
