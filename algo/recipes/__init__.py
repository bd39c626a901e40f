"""Recipes: YAML files that list stages (build a model, imitate, train, evaluate), and the report over their results."""
