"""TensorRT-LLM builds as data: flags by version, rules between them, command lines, old commands translated.

Source of names, defaults and rules: TensorRT-LLM's commands/build.py, convert_checkpoint.py and quantize.py of the
1.0 to 1.2 line, and its release notes for what came and went before.
"""
