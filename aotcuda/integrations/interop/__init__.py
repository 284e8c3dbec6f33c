"""Pass packaged device functions to other compilers; each compiler has a module here."""
