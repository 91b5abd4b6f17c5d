"""The recipe: a YAML file, validated by line, that says everything a run depends on."""
