"""Model files on this machine: manifest, download, verification."""
