"""The `outrider` commands of the cloud side."""
