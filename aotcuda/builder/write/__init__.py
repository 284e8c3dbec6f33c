"""Write files into output folders and source trees."""
