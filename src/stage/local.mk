# src/stage
