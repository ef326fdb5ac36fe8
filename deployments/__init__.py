import gan_core  # noqa: F401  names that have moved say where
