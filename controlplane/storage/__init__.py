"""The only SQLAlchemy of the control plane: models, repositories, database."""
