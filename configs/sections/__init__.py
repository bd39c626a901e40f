"""The sections of a configuration, one a file; ``configs.schema`` puts them together."""
