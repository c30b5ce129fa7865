# src/schedule
