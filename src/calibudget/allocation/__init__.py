"""Pure numbers of the method: need, reliability, utility, apportionment, policies and their checks."""
