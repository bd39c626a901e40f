"""Run configuration: the typed schema, the YAML files that people edit, and light types of the store."""
