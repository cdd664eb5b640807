"""Where arrays lie: meshes, tables of axes, layouts; and what chips can do."""
