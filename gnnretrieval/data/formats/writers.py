"""Writers of datasets in other formats, one module each (``*_writer.py``)."""
