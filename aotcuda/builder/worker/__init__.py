"""The worker process of a build, and how it is started, fed and followed."""
