"""The `outrider` commands of the edge side."""
