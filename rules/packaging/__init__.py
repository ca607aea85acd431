"""Rule packs as files: loaded, installed, locked, compared, made anew."""
