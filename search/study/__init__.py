"""The Optuna study and its storage, which several processes may share."""
