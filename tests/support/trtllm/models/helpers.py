"""What the llmapi stand-in imports, as the real one has a file of that name."""

import yaml


def read_arguments(path):
    """The arguments of LLM(), and triton_config."""
    with open(path) as file:
        return yaml.safe_load(file)


def first(values, name, default):
    """The first value of an input, or the default where it was not sent."""
    found = values.get(name)
    return default if found is None else found.flatten()[0]
