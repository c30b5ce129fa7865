# src/io
