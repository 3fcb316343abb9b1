// Tests are compiled by tsc beforehand, which checks their types; only the live view's modules,
// which the panel shares, are ES modules yet.
module.exports = {
  roots: ['<rootDir>/.jest'],
  testEnvironment: 'node',
  testMatch: ['**/*.test.js'],
  transform: { '/views/live/.*\\.js$': '<rootDir>/jest.transform.js' }
};
