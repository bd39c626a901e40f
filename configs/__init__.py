"""Run configuration: the typed schema and the YAML files that people edit, with light types of the store."""
