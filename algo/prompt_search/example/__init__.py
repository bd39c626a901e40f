"""The smallest agent whose prompt can be searched; the page beside this folder tells how."""
