"""Each numeric constant of `matchers` moved by 3 and by 1/3: which does no test hold?"""
