"""Run configuration: the typed schema and the YAML files that people edit. A leaf: imports nothing of ours."""
