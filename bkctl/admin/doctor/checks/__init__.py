"""The checks of the doctor, a module for each subject; :mod:`bkctl.admin.doctor.doctor` has their table."""
