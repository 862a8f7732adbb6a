"""One file a verb: read the arguments, call the library, print the result.

Each offers `register(app)`, which adds its commands. Heavy libraries are imported inside the
commands, so that `ghostwright --help` is instant.
"""
