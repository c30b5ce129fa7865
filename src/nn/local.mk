# src/nn
