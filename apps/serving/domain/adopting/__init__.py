"""Serving a model repository that somebody already had: what of it becomes settings, what is kept, what is refused.

`plan.make` is the way in; `settings` maps a configuration to the fields of a batching profile and back, `files` says
what an instance's repository is made of. Plain Python.
"""
