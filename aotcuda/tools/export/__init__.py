"""`aotcuda export`: fill a folder that Triton reads as its cache, and compare such a folder with an environment.

`command` plans the export and starts a worker for each compute capability. `worker` imports the sources and lets Triton
compile, with `compilation`, `launchers` and `timings`. `folder` adds the entries to the folder. `check` compares a
folder with the installed Triton. `private_parts` lists the private parts of Triton that exports use.
"""
