"""An encoder behind HTTP that fails, limits its rate and bills."""
