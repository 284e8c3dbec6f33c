"""Write the files of a wheel from the results of workers."""
