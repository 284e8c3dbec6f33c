"""The cache of what builds made, so that nothing is built twice.

    settings    whether there is one, where it is, who may write it, and what all its entries depend on
    names       values as digests: entries are named by what they were made from
    values      values as entries hold them: JSON and files, never a pickle
    store       entries, here and at a URL
    remote      those at a URL, by fsspec
    places      questions to the machine, by paths that mean the same elsewhere
    whole       a whole build: its files, found again with no compiler imported
    kept        the steps of a build: compiled units, merged functions, linked images
    slices      what of the project's Python a unit can depend on

What is kept is taken only where the slow way would give the same; docs/design.md says how that is known.
"""
