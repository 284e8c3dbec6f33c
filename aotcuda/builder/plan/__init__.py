"""Plans of modules, and the toolkits and processes that a build can use."""
